# SPDX-License-Identifier: Apache-2.0
"""What the newest window shows, summed up for people: by link, leaf, rail, host, task and pair."""
