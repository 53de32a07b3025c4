# SPDX-License-Identifier: Apache-2.0
"""Who holds a job up, as its own operators tell."""
