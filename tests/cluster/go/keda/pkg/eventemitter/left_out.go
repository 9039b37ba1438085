package eventemitter

import "errors"

func NewAzureEventGridTopicHandler(...any) (EventDataHandler, error) {
	return nil, errors.New("Azure's Event Grid is left out of this build")
}
