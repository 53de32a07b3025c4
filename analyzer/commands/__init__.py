# SPDX-License-Identifier: Apache-2.0
"""One verb of netagent-analyzer per module."""
