# SPDX-License-Identifier: Apache-2.0
"""Outer headers seen on the uplinks, and the routers on their way."""
