# SPDX-License-Identifier: Apache-2.0
"""What is kept of windows for long: minutes, hours, by pair and by component."""
