# SPDX-License-Identifier: Apache-2.0
"""The page for browsers: a listener of its own, sessions, and the views that it shows."""
