# SPDX-License-Identifier: Apache-2.0
"""Which components, any number at once, explain what flows lost: network tomography over arrays."""
