"""The commands for people at a shell, `airflow-coordination`: what a store holds, and what to do about it.

They need no Airflow, unless a connection of Airflow's is to be looked up.
"""
