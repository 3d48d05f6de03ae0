// Package ui serves a page that shows which devices there are, who holds their slots,
// why pods wait, and what happened in the last hour. The page only reads.
//
// Objects flow one way: watches of the API server → view.View → State → Updates, which
// browsers get as server-sent events. What each step makes of the one before it is a
// function of values; Hub runs them, Page serves them to the user of `kubectl kubeslot
// ui`, and Sessions to the users of a cluster (kubeslot-ui), each with permissions of their own.
package ui
