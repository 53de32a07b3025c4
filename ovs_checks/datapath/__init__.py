# SPDX-License-Identifier: Apache-2.0
"""What the datapath holds: its flows' keys, and what of its actions is the same in every layer."""
