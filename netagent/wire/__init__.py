# SPDX-License-Identifier: Apache-2.0
"""What crosses the network: messages, their codec, and the bytes of one probe."""
