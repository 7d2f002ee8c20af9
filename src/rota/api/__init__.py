"""Answers of the server: one description of each, a module per noun.

The gateway encodes these values, the SDK decodes them, the CLI prints them, and OpenAPI describes
them. Must not know anything else of ours, as the SDK is upgraded apart from the server.
"""
