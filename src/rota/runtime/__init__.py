"""The composition root: configuration, logging, supervision, and which adapter serves which port.

Knows every part so that no other part has to. Must not hold rules of the product: those belong in
`domain` and `operations`.
"""
