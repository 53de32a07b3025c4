# SPDX-License-Identifier: Apache-2.0
"""`netagent flows`: dump, trace, lint, layers, sweep."""
