# SPDX-License-Identifier: Apache-2.0
"""What traces of the virtual switches are wanted, and what they say."""
