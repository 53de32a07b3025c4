# SPDX-License-Identifier: Apache-2.0
"""The rim: sockets, OVSDB, netlink, disk and HTTP."""
