# SPDX-License-Identifier: Apache-2.0
"""A host's agent: who is here, what is probed, what is sent, and what it answers."""
