# SPDX-License-Identifier: Apache-2.0
"""The host's own parts: its kernel, its devices, its virtual switch and its namespaces."""
