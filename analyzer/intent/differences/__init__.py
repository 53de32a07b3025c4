# SPDX-License-Identifier: Apache-2.0
"""Where what hosts have is not what their controller wants: a question a file."""
