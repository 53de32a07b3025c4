# SPDX-License-Identifier: Apache-2.0
"""From events to summaries."""
