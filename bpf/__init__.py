# SPDX-License-Identifier: Apache-2.0
"""Kernel programs of netagent, and how they are loaded. Nothing is here yet."""
