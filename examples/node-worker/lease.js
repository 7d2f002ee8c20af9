'use strict';

/** How long before the end of a lease everything has to be dead; a short lease keeps a third. */
function guardMargin(leaseMs) {
  return Math.min(Math.max(2_000, leaseMs / 10), leaseMs / 3);
}

module.exports = { guardMargin };
