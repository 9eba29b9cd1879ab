"""Features that are topics used in a certain way: dead letters, transactions, schedules."""
