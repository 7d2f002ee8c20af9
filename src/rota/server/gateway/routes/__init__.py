"""The routes, one module a noun. Each turns a request into an operation and its result into JSON.

Must not decide anything: a rule that is needed here is needed by every other door too.
"""
