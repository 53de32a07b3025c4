# SPDX-License-Identifier: Apache-2.0
"""The analyzer as a server: assembled, supervised, reachable over HTTP."""

from analyzer.server.assembly import serve

__all__ = ["serve"]
