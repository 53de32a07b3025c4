# SPDX-License-Identifier: Apache-2.0
"""Which page of docs/runbooks belongs to a verdict, a finding or a warning. Pure."""
