# SPDX-License-Identifier: Apache-2.0
"""What is wrong with flow tables whatever packet comes, and what the layers below make of them."""
