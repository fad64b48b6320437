"""The place in the manual that says what to do about each alarm and warning of the pages."""

from __future__ import annotations

MANUAL = {
    # Alarms of a source, by what they are about
    "lost": "data_loss#data-loss",
    "parked": "operations#what-to-press",
    "overdue": "troubleshooting_tasks#acknowledgments",
    "suspended": "operations#what-to-press",
    "expired": "operations#of-a-lease",
    "waiting": "operations#what-to-press",
    "lag": "operations#capacity",
    "failing": "troubleshooting_jobs#the-spark-job",
    "supervisor": "supervisor_verbs#states",
    "sink": "sink_outage",
    # Warnings that the pages show themselves
    "access": "ui#who-sees-and-does-what",
    "bad-records": "bad_records",
    "connection": "troubleshooting_tasks#the-connection",
    "data-loss": "data_loss#data-loss",
    "failed-request": "troubleshooting#where-to-look",
    "hole": "streams#the-audit",
    "job": "operations#of-a-job",
    "spec": "specs",
    "store": "troubleshooting_stores#the-store",
    "unreadable": "troubleshooting_jobs#items",
}
"""`page#anchor` of `docs/`, by topic. A page's file has `.md` after its name; an anchor is a heading in lower case."""
