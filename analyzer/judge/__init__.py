# SPDX-License-Identifier: Apache-2.0
"""The judge: a process of its own that runs the diagnosis, so that receiving never waits for it."""
