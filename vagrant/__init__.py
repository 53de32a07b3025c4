# SPDX-License-Identifier: Apache-2.0
"""Guests with kernels that the development machine lacks, and what runs in them."""
