# SPDX-License-Identifier: Apache-2.0
"""Which endpoint pairs a training task really uses, from its traffic alone."""
