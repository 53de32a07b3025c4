# SPDX-License-Identifier: Apache-2.0
"""Requests to the analyzer and to the other agents."""
