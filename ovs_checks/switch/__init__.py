# SPDX-License-Identifier: Apache-2.0
"""A host's virtual switch as a value, and the readers of what its tools print."""
