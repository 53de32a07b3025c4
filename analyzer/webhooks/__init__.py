# SPDX-License-Identifier: Apache-2.0
"""What receivers elsewhere are told of incidents: which event, when, and once more until taken."""
