// Package widget is an example of a plugin, to be copied: accelerators called
// widgets, several to a board. A container that asks for example.com/widget gets
// all its widgets from one board.
//
//   - device.go, the node's half: says what the node has, and tells a container
//     which widgets it got
//   - scheduler.go, the scheduler's half: turns "2 widgets" into a request of the
//     group scheduler, which finds the board
//
// The folders beside hold only the factories, for a plugin is a package main,
// and nothing can import that. `make plugins` builds both; docs/plugins.md says
// how to begin a plugin of your own with a copy.
package widget

import (
	"fmt"

	"github.com/kubeslot/kubeslot/types"
)

// Resource is what pods ask for: in a container's resources.limits, or in the
// requests of its KubeDevice/DeviceInfo annotation.
const Resource types.ResourceName = "example.com/widget"

// The hierarchy: group resource board/<board>/widget/<widget>/cards, of which
// each widget has one.
const (
	boardStage  = "board"
	widgetStage = "widget"
	leaf        = "cards"
)

// key is a group resource without its prefix. On a node the indexes are a board
// and a widget; in a request they are labels that say what belongs together.
func key(board, widget int) string {
	return fmt.Sprintf("%s/%d/%s/%d/%s", boardStage, board, widgetStage, widget, leaf)
}
