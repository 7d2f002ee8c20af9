"""Operations of Rota, one function each: submit, trigger, cancel, fire, release, claim, finish.

REST, CLI and loops share them, so an action means the same wherever it is started. Must not know
who asks, how the answer is shown, or which adapter stands behind a port.
"""
