# SPDX-License-Identifier: Apache-2.0
"""Seeded generators: each returns the signal and the truth."""
