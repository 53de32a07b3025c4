# SPDX-License-Identifier: Apache-2.0
"""The analyzer: registry, ping lists, detection, localisation, API."""
