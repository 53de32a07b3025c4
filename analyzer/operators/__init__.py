# SPDX-License-Identifier: Apache-2.0
"""Logs of a job's operators, whatever wrote them."""
