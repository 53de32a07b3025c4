# SPDX-License-Identifier: Apache-2.0
"""What Prometheus and Grafana are given: rules of alerts, and a dashboard. Texts and values."""
