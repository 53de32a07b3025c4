# SPDX-License-Identifier: Apache-2.0
"""The host agent of netagent: probes, traces and answers for one GPU server."""

__version__ = "0.1.0"
