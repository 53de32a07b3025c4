# SPDX-License-Identifier: Apache-2.0
"""How often the right one is named for holding up a job: simulated jobs, beside simpler rules."""
