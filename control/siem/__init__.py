"""SIEM deliveries: the audit log and events of an organization, sent to a target of its own.

`lines` says what is told and in which order, `ocsf` how that is said in OCSF, `targets` which
request a batch becomes, and `lane` when it is sent.
"""
