"""The command line `airflow-coordination`: show what a store holds, and change it.

The commands need Airflow only to look up an Airflow connection.
"""
