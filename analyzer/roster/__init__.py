# SPDX-License-Identifier: Apache-2.0
"""The roster of the cluster, and the ping lists that agents get."""
