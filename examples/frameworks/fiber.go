package main

import (
	"net"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/semelfiber"
)

var onFiber = service{
	scope: semelfiber.Scope(func(c fiber.Ctx) (string, error) { return fiber.Locals[string](c, "account"), nil }),
	serve: func(l net.Listener, guard *semel.Guard, ledger *ledger) error {
		app := fiber.New()
		app.Use(recover.New(), func(c fiber.Ctx) error {
			c.Locals("account", c.Get("X-Account"))
			return c.Next()
		})
		app.Post("/payments", semelfiber.Middleware(guard), func(c fiber.Ctx) error {
			var p payment
			if err := c.Bind().JSON(&p); err != nil {
				return fiber.NewError(fiber.StatusBadRequest, "not JSON")
			}
			ch, err := ledger.charge(p)
			if err != nil {
				return fiber.NewError(fiber.StatusUnprocessableEntity, err.Error())
			}
			c.Location("/payments/" + ch.ID)
			return c.Status(fiber.StatusCreated).JSON(ch)
		})
		app.Get("/operations", semelfiber.Handler(guard.Operations()))
		return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
	},
}
