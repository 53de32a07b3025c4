# SPDX-License-Identifier: Apache-2.0
"""What controllers say should be: OVN's is read in a process of its own, Kubernetes' is not."""
