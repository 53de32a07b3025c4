# SPDX-License-Identifier: Apache-2.0
"""What a controller says should be, and where that differs from what hosts report."""
