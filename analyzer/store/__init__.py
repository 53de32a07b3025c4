# SPDX-License-Identifier: Apache-2.0
"""The data that survives a restart: summaries, registry, tasks, incidents."""
