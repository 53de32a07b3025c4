# SPDX-License-Identifier: Apache-2.0
"""How good the answers are, on simulated jobs whose truth is known: `make eval-...`."""
