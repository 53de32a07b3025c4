# SPDX-License-Identifier: Apache-2.0
"""Which component is at fault."""
